"""Random input, of which nothing may be more than refused or set aside."""
