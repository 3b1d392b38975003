"""Which speculative decoding setup, if any, makes this model faster on this machine?"""

__version__ = "0.1.0"
