"""Files at URLs (`s3://`, `gs://`, `memory://`, …): listing, reading, writing, a local cache.

Only this package uses fsspec, which is imported for the first request.
"""
