"""A cluster as a person sees it."""
