"""From a process to a task: the spec, what launches said, who may do what."""
