"""aot/passes"""
