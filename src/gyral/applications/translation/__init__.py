"""Translation of sentences: encoders and decoders of any cells, convolutions or self-attention; BLEU."""
