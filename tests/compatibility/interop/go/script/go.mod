module kafkalite.interop/script

go 1.23
