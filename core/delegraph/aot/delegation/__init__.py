"""Edge program -> lowered program: tags -> calls of compiled blobs, and a reason for every node that was left."""
