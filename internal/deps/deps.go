// Package deps holds on to modules that code in the making needs.
package deps

import (
	_ "github.com/apache/pulsar-client-go/pulsar"
	_ "github.com/apache/pulsar-client-go/pulsaradmin"
	_ "github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/testcontainers/testcontainers-go"
	_ "gocloud.dev/blob/fileblob"
	_ "gocloud.dev/blob/memblob"
	_ "gocloud.dev/blob/s3blob"
)
