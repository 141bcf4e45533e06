"""Message declarations and the encoders and decoders compiled from them. Imports common."""
