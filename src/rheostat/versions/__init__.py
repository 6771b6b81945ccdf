"""Every config that ever served, who changed it and why, and which one serves instead of the file."""
