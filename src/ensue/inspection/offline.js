// Draws a page that contains its content.
open(document);
