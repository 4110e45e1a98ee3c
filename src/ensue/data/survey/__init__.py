"""What `ensue data` shows: what data are taken for, and how much of what is in them. It prints nothing."""
