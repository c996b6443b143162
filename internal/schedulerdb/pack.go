package schedulerdb

import (
	"bytes"
	"compress/zlib"
	"fmt"
	"io"
)

// minCompress is the size up to which Armada stores rather than compresses.
const minCompress = 1024

// packer compresses as Armada's ingester does: zlib, fast, and small things stored.
type packer struct {
	fast, stored *zlib.Writer
	buf          bytes.Buffer
}

func (p *packer) compress(b []byte) ([]byte, error) {
	w, level := &p.stored, zlib.NoCompression
	if len(b) > minCompress {
		w, level = &p.fast, zlib.BestSpeed
	}
	p.buf.Reset()
	if *w == nil {
		made, err := zlib.NewWriterLevel(&p.buf, level)
		if err != nil {
			return nil, fmt.Errorf("compress: %w", err)
		}
		*w = made
	} else {
		(*w).Reset(&p.buf)
	}
	if _, err := (*w).Write(b); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	if err := (*w).Close(); err != nil {
		return nil, fmt.Errorf("compress: %w", err)
	}
	return bytes.Clone(p.buf.Bytes()), nil
}

// gobStrings is what a gob of []string begins with: the definition of its type,
// under the first number that is free for one.
const gobStrings = "\x0b\x7f\x02\x01\x02\xff\x80\x00\x01\x0c\x00\x00"

// encodeGroups is the gob of the groups, which is how Armada stores them. Written
// here, its bytes do not depend on what else the process has made gobs of.
func encodeGroups(groups []string) []byte {
	body := []byte("\xff\x80\x00") // a value of that type; it is no struct
	body = appendGobUint(body, uint64(len(groups)))
	for _, g := range groups {
		body = appendGobUint(body, uint64(len(g)))
		body = append(body, g...)
	}
	return append(appendGobUint([]byte(gobStrings), uint64(len(body))), body...)
}

// appendGobUint: one byte up to 127, else how many bytes follow, negated, and
// they, big end first.
func appendGobUint(b []byte, n uint64) []byte {
	if n < 0x80 {
		return append(b, byte(n))
	}
	size := 1
	for n>>(8*size) != 0 && size < 8 {
		size++
	}
	b = append(b, byte(-size))
	for i := size - 1; i >= 0; i-- {
		b = append(b, byte(n>>(8*i)))
	}
	return b
}

// decompress reads what compress wrote.
func decompress(b []byte) ([]byte, error) {
	r, err := zlib.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	out, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("decompress: %w", err)
	}
	return out, nil
}
