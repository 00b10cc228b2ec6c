"""`portcullis doctor`: diagnoses a running gateway, and says what to do."""
