use proptest::prelude::*;

use super::*;

/// Decodes `wire`, fed in pieces of `step` bytes: the data, the trailers, what was left over.
fn decode(wire: &[u8], step: usize) -> Result<(Vec<u8>, HeaderMap, usize), ChunkError> {
    let mut decoder = Decoder::new();
    let (mut data, mut trailers) = (Vec::new(), HeaderMap::new());
    let mut pieces = wire.chunks(step);
    let mut input = Bytes::new();
    loop {
        match decoder.next(&mut input)? {
            Piece::Data(piece) => data.extend_from_slice(&piece),
            Piece::Trailers(fields) => {
                trailers = fields;
                break;
            }
            Piece::End => break,
            Piece::More => match pieces.next() {
                Some(piece) => input = Bytes::copy_from_slice(piece),
                None => panic!("the body does not end: {:?}", String::from_utf8_lossy(wire)),
            },
        }
    }
    Ok((
        data,
        trailers,
        input.len() + pieces.map(<[u8]>::len).sum::<usize>(),
    ))
}

#[test]
fn bodies_are_decoded_whatever_the_pieces() {
    let wire = b"4\r\nWiki\r\n6;a=\"b\"\r\npedia \r\nE\r\nin \r\n\r\nchunks.\r\n0\r\nx-sum: 7\r\n\r\nrest";
    for step in 1..wire.len() {
        let (data, trailers, left) = decode(wire, step).unwrap();
        assert_eq!(data, b"Wikipedia in \r\n\r\nchunks.");
        assert_eq!(trailers["x-sum"], "7");
        assert_eq!(left, 4, "step {step}");
    }
}

#[test]
fn nothing_is_forgiven() {
    let bad: [&[u8]; 16] = [
        b"\r\n",
        b"4\nWiki\r\n0\r\n\r\n",
        b"4\r\nWiki\n0\r\n\r\n",
        b"4\r\nWikiX\r\n0\r\n\r\n",
        b"0x4\r\nWiki\r\n0\r\n\r\n",
        b"+4\r\nWiki\r\n0\r\n\r\n",
        b"-4\r\nWiki\r\n0\r\n\r\n",
        b" 4\r\nWiki\r\n0\r\n\r\n",
        b"4 \r\nWiki\r\n0\r\n\r\n",
        b"4,5\r\nWiki\r\n0\r\n\r\n",
        b"1000000000000000\r\n",
        b"4;a\x00b\r\nWiki\r\n0\r\n\r\n",
        b"4;a\rb\r\nWiki\r\n0\r\n\r\n",
        b"0\r\nx y: 1\r\n\r\n",
        b"0\r\nx : 1\r\n\r\n",
        b"0\r\nx: 1\r\n folded\r\n\r\n",
    ];
    for wire in bad {
        assert!(decode(wire, 3).is_err(), "{:?}", String::from_utf8_lossy(wire));
    }
    let long_line = [b"4;".as_slice(), &[b'a'; 2000]].concat();
    assert_eq!(decode(&long_line, 100), Err(ChunkError::Line));
    let long_trailer = [b"0\r\nx: ".as_slice(), &[b'a'; 20_000]].concat();
    assert_eq!(decode(&long_trailer, 100), Err(ChunkError::Trailers));
}

#[test]
fn a_trailer_cannot_change_the_framing() {
    let wire = b"0\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\nhost: evil\r\nx-a: 1\r\n\r\n";
    let (_, trailers, _) = decode(wire, 7).unwrap();
    assert_eq!(trailers.len(), 1);
    assert_eq!(trailers["x-a"], "1");
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..50), 0..8),
        step in 1usize..40,
    ) {
        let mut wire = Vec::new();
        for chunk in &chunks {
            wire.extend_from_slice(format!("{:X}\r\n", chunk.len()).as_bytes());
            wire.extend_from_slice(chunk);
            wire.extend_from_slice(b"\r\n");
        }
        let mut trailers = HeaderMap::new();
        trailers.insert("x-t", HeaderValue::from_static("v"));
        encode_end(&trailers, &mut wire);
        let (data, decoded, left) = decode(&wire, step).unwrap();
        prop_assert_eq!(data, chunks.concat());
        prop_assert_eq!(decoded, trailers);
        prop_assert_eq!(left, 0);
    }

    #[test]
    fn arbitrary_bytes_never_panic(wire in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut decoder = Decoder::new();
        let mut input = Bytes::from(wire);
        while let Ok(Piece::Data(_)) = decoder.next(&mut input) {}
    }
}
