"""A report of runs as one HTML file that needs nothing else: `write.write` makes it, `template/` holds what it looks
like."""
