"""The proof that strangers' data, and people who should not, get nowhere."""
