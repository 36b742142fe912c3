"""The pages of accounts: apps, who may do what, and who is signed in."""
