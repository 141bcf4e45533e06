"""Records of topics: read, searched, decoded, written."""
