"""Conversations that are kept between requests: in memory, in an SQLite file that workers share, in Redis for machines."""
