"""Queue objects as a tree that says which unit goes next, what a quota holds back, and who gives back what it borrowed.

Pure. ``tree.py`` is the way in; ``docs/fair-share.md`` has the arithmetic for people.
"""
