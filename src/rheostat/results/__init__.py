"""L4 of the fallback ladder: the last good answers, and requests that are completed after their client was answered."""
