"""The page of a run: what goes on it is read and drawn part by part, and put together in
`whole.py`.
"""

from .whole import page as page
