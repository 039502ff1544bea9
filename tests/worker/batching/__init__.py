"""An app whose handlers take lists; installed for the tests of batches alone, as it is the
largest batch declared that decides how much every lease takes."""
