"""Framework glue. Each module needs its extra: ``pip install kvpacket-store[langchain]``."""
