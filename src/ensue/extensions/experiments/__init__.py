"""Many runs: search of settings, comparison of runs, trackers."""
