"""`portcullis audit`: from the command line to the exit status."""
