"""Descriptions of models: Hugging Face configurations, Megatron-LM arguments, public names."""
