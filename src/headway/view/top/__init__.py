"""`headway top`: who uses the GPU, who waits, and what each has left, while it happens.

`rows` and `columns` turn what the daemon says into cells and know no terminal; `app` is the screen,
`plain` the same as text or JSON.
"""
