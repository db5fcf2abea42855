"""Multi-domain image data: listing, decoding, sampling."""
