"""ATen program -> functional core ATen program: mutation becomes data flow, composite operators become core ones."""
