"""Models of other programs as runs of ours, and ours as theirs."""
