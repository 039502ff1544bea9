"""Code that is checked by mypy and never run: do the public types say what they should?"""
