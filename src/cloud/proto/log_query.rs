//! Pages of logs.
//!
//! In: the query of a log request. Out: a [`LogQuery`]. Invalid numbers are rejected.

use crate::proto::api_error::ApiError;
use edge_runner_proto::server::form;
use edge_runner_proto::server::range::number;

const LOG_PAGE_MAX: usize = 10_000;

/// Default number of lines of a log page.
const LOG_PAGE: usize = 500;

/// The query of a log request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogQuery {
    /// Largest number of lines.
    pub limit: usize,
    /// Where the page begins, from the previous page. `None`: at the first line.
    pub token: Option<String>,
}

impl LogQuery {
    /// Parses a query string.
    ///
    /// # Errors
    /// 400 for an invalid `limit`.
    pub fn parse(query: &str) -> Result<LogQuery, ApiError> {
        let pairs = form::parse(query.as_bytes());
        let limit = match form::find(&pairs, "limit") {
            None => LOG_PAGE,
            Some(text) => number(text)
                .and_then(|limit| usize::try_from(limit).ok())
                .filter(|limit| (1..=LOG_PAGE_MAX).contains(limit))
                .ok_or_else(|| ApiError::bad_request(format!("`limit` must be a number from 1 to {LOG_PAGE_MAX}")))?,
        };
        Ok(LogQuery {
            limit,
            token: form::find(&pairs, "nextToken").map(str::to_owned),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I-14: 500 lines by default, 1 to 10 000 on request.
    #[test]
    fn log_queries_have_limits() {
        let read = |query| LogQuery::parse(query).map(|lines| (lines.limit, lines.token));
        assert_eq!(read(""), Ok((500, None)));
        assert_eq!(read("limit=1&nextToken=a%20b"), Ok((1, Some("a b".into()))));
        assert_eq!(read("limit=10000"), Ok((10_000, None)));
        for query in ["limit=0", "limit=10001", "limit=", "limit=x", "limit=-1", "limit=%2B1"] {
            assert_eq!(read(query).expect_err(query).status, 400);
        }
    }
}
