"""The proof that groupqueue keeps its promises, against real servers."""
