"""What predict.py of an exported folder is made of; `gather` copies it there, and nothing here is used otherwise.

One module for each kind of rows, with two functions: `read` a file, and make its rows `ready` for the network.
"""
