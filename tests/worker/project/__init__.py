"""The app whose handlers the tests' workers run."""
