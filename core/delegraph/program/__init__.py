"""What a program is: records <-> bytes <-> text. Imports neither torch nor anything of the stages around it."""
