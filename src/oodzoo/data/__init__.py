"""Multi-domain image data sets: listing, decoding, sampling."""
