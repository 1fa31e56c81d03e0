//! Tensors as `.npy` files, without numpy: types, strides, hostile headers.

use gpuvol_client::layout::{Dtype, LayoutError, TensorMeta, parse_tensor, plan_tensor};

use super::generate::Random;

#[test]
fn every_type_comes_back_with_its_attributes() {
    for dtype in Dtype::all() {
        for shape in [vec![], vec![0, 3], vec![7], vec![2, 3, 4], vec![1; 64]] {
            for fortran_order in [false, true] {
                let meta = TensorMeta { dtype, shape: shape.clone(), fortran_order };
                let header = plan_tensor(&meta).unwrap();
                let len = header.len() as u64 + meta.data_bytes().unwrap();
                assert_eq!(header.len() % 64, 0);
                let parsed = parse_tensor(&header, len, &meta.attributes()).unwrap();
                assert_eq!(parsed, (meta.clone(), header.len() as u64));
                let bare = parse_tensor(&header, len, "");
                assert_eq!(bare.is_ok(), dtype.is_numpy(), "{dtype:?}");
                if meta.data_bytes().unwrap() > 0 {
                    assert!(matches!(
                        parse_tensor(&header, len - 1, &meta.attributes()),
                        Err(LayoutError::Corrupt { .. })
                    ));
                }
            }
        }
    }
}

#[test]
fn attributes_must_agree_with_the_header() {
    let header = plan_tensor(&TensorMeta::new(Dtype::F32, vec![1])).unwrap();
    for attributes in ["dtype=bfloat16", "dtype=int32", "dtype=float4"] {
        assert!(parse_tensor(&header, 1000, attributes).is_err(), "{attributes}");
    }
    assert_eq!(TensorMeta::from_attributes("other=1;dtype=float8_e5m2").unwrap(), Some(Dtype::F8E5M2));
    assert_eq!(TensorMeta::from_attributes("").unwrap(), None);
}

#[test]
fn strides_in_bytes() {
    let mut meta = TensorMeta::new(Dtype::I32, vec![2, 3, 4]);
    assert_eq!(meta.strides().unwrap(), [48, 16, 4]);
    meta.fortran_order = true;
    assert_eq!(meta.strides().unwrap(), [4, 8, 24]);
}

#[test]
fn shapes_that_overflow_are_refused() {
    for shape in [vec![u64::MAX], vec![1 << 32, 1 << 32], vec![1 << 61], vec![1; 65]] {
        let error = plan_tensor(&TensorMeta::new(Dtype::F64, shape)).unwrap_err();
        assert!(matches!(error, LayoutError::Tensor(_)), "{error}");
    }
    assert_eq!(TensorMeta::new(Dtype::F64, vec![u64::MAX, 0]).data_bytes().unwrap(), 0);
}

#[test]
fn hostile_headers_do_not_panic() {
    let random = &mut Random::new(11);
    let valid = plan_tensor(&TensorMeta::new(Dtype::I64, vec![3, 4])).unwrap();
    for _ in 0..20_000 {
        let mut header = valid.clone();
        for _ in 0..1 + random.below(4) {
            let at = random.below(header.len());
            header[at] = u8::try_from(random.below(256)).unwrap();
        }
        header.truncate(random.below(header.len() * 2));
        if let Ok((meta, offset)) = parse_tensor(&header, 4096, "") {
            assert!(offset + meta.data_bytes().unwrap() <= 4096);
        }
    }
}
