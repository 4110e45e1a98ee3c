// A page that has its content.
open(document);
