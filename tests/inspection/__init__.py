"""Looking inside: what is found, and the page that shows it."""
