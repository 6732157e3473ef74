module truthserver

go 1.25
