"""The tests of Carillon."""
