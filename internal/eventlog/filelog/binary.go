package filelog

import (
	"encoding/binary"
	"hash/crc32"

	"github.com/refloat/refloat/internal/eventlog"
)

var (
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
	le         = binary.LittleEndian
)

func checksum(parts ...[]byte) uint32 {
	var c uint32
	for _, b := range parts {
		c = crc32.Update(c, castagnoli, b)
	}
	return c
}

func putPosition(b []byte, p eventlog.Position) {
	le.PutUint64(b, uint64(p.Ledger))
	le.PutUint64(b[8:], uint64(p.Entry))
	le.PutUint32(b[16:], uint32(p.Batch))
}

func positionAt(b []byte) eventlog.Position {
	return eventlog.Position{
		Ledger: int64(le.Uint64(b)),
		Entry:  int64(le.Uint64(b[8:])),
		Batch:  int32(le.Uint32(b[16:])),
	}
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}
