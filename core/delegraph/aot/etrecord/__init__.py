"""The programs of a lowering, and which instruction came from which of their nodes <-> an ETRecord, for an Inspector"""
