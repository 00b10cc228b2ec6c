"""What the documentation shows is run; what it lists is compared with the code."""
