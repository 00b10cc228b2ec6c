"""`portcullis doctor`: what is not as it should be with a gateway that runs, and what to do."""
