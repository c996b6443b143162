module github.com/refloat/refloat/deploy/ready

go 1.26.0
