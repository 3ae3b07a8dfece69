//! Answers of the object store: keys of a listing, and codes of errors.
//!
//! In: XML of a store. Out: the texts of the elements that are asked for, with entities resolved.
//! Anything else is skipped, so a malformed answer gives fewer texts and no error, unless it is no
//! listing at all. Source: Amazon S3 API Reference, "ListObjectsV2", "Error Responses".

/// Returns the keys of a listing. `None`: it is none.
pub fn keys(xml: &str) -> Option<Vec<String>> {
    xml.contains("<ListBucketResult").then(|| texts(xml, "Key").collect())
}

/// Returns the code of an error, such as `NoSuchKey`.
pub fn error_code(xml: &str) -> Option<String> {
    let code = texts(xml, "Code").next()?;
    // It is logged.
    code.bytes().all(|byte| byte.is_ascii_alphanumeric()).then_some(code)
}

fn texts<'x>(xml: &'x str, element: &str) -> impl Iterator<Item = String> + use<'x> {
    let (start, end) = (format!("<{element}>"), format!("</{element}>"));
    let mut rest = xml;
    std::iter::from_fn(move || {
        let (_, after) = rest.split_once(&start)?;
        let (text, after) = after.split_once(&end)?;
        rest = after;
        Some(unescaped(text))
    })
}

fn unescaped(text: &str) -> String {
    let text = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&quot;", "\""),
        ("&#34;", "\""),
        ("&apos;", "'"),
        ("&#39;", "'"),
    ]
    .iter()
    .fold(text.to_owned(), |text, (entity, letter)| text.replace(entity, letter));
    // The last, so that what it brings is not resolved again.
    text.replace("&amp;", "&")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read_from_a_listing() {
        let xml = "<?xml version=\"1.0\"?><ListBucketResult><Name>b</Name><Contents><Key>a/1</Key><Size>1</Size></Contents>\
                   <Contents><Key>a/x &amp;lt; &#39;y&quot;</Key></Contents></ListBucketResult>";
        assert_eq!(keys(xml).expect("a listing"), ["a/1", "a/x &lt; 'y\""]);
        let empty =
            "<ListBucketResult xmlns=\"http://s3.amazonaws.com/doc/2006-03-01/\"><Name>b</Name></ListBucketResult>";
        assert_eq!(keys(empty), Some(Vec::new()));
        for other in ["", "<Key>a</Key>", r#"{"Contents":[{"Key":"a"}]}"#] {
            assert_eq!(keys(other), None, "{other}");
        }
    }

    #[test]
    fn an_error_has_a_code() {
        assert_eq!(
            error_code("<Error><Code>NoSuchKey</Code></Error>").as_deref(),
            Some("NoSuchKey")
        );
        assert_eq!(error_code("<Error><Code>a\nb</Code></Error>"), None);
        assert_eq!(error_code("nothing"), None);
    }
}
