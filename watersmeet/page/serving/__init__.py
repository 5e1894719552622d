"""The process behind a page. Only Python's standard library, and imports from beside each other: see page.py."""
